#!/usr/bin/env bash
# Installs the programs that some tests drive, where that is possible (root on Debian) and they are missing. Where it is
# not, those tests skip with a loud line; under CI=true a missing one is a failure.
set -euo pipefail

missing=()
need() { command -v "$1" >/dev/null 2>&1 || missing+=("$2"); }
need java default-jre-headless
need mvn maven
need kcat kcat
need chromium chromium
need promtool prometheus
need systemd-analyze systemd
need nginx nginx-light
need openssl openssl

if [ ${#missing[@]} -eq 0 ]; then exit 0; fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
  echo "not installed, so some tests will be skipped: ${missing[*]} (Debian's names)" >&2
  exit 0
fi
echo "installing for the tests: ${missing[*]} ..."
export DEBIAN_FRONTEND=noninteractive
# A package's service must not start by itself on the machine that runs the tests.
if [ ! -e /usr/sbin/policy-rc.d ]; then
  printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d && chmod +x /usr/sbin/policy-rc.d
  trap 'rm -f /usr/sbin/policy-rc.d' EXIT
fi
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
