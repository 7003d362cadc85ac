"""What `streamdp demo` shows: a real daemon, fed a recorded outbreak, beside the truth that only the feeder knows."""
