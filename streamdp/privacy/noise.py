"""The one door randomness comes through, and exact samplers on top of it.

No floating point decides a sample. A Bernoulli(p) trial compares random bits with the binary digits of p, eight bits
first and more only where those are equal, so it is exact for irrational p and costs about one byte.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from numbers import Integral
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from streamdp.privacy.queries import Query
from streamdp.privacy.thresholds import Probability

Rational = float | int | Fraction | Decimal
Size = int | tuple[int, ...]
Answer = TypeVar("Answer")

# Beyond this an int64 is no longer sure to hold a sample: at the limit, |x| reaches 2**63 with probability exp(-1024).
LARGEST_SCALE = 2**53
# What `saturated` keeps of sums that were noised with a larger scale; a few thousand of them still add up in an int64.
_LARGEST_SUM = 2**50
# A chunk's random words, comparisons and sums stay in the processor's cache.
_CHUNK_LANES = 1 << 15
# Of samples beyond 64 bits each has a thousand trials and more.
_WIDE_LANES = 1 << 10
_FIRST_DIGITS = 8
_NEXT_DIGITS = 64


class NoiseSource(ABC):
    """Where random bytes come from, and the one seam that every answer of a mechanism goes through."""

    @abstractmethod
    def random_bytes(self, count: int) -> bytes:
        """`count` bytes, independent and uniform, never handed out before."""

    def answer(self, query: Query, run: Callable[[], Answer]) -> Answer:
        """What a mechanism answers to `query`, which is what `run` draws. Only audits and tests answer otherwise."""
        return run()


class SystemSource(NoiseSource):
    """The operating system's CSPRNG.

    Nothing is kept between calls, so no thread and no forked child can be handed bytes that another has seen.
    """

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)


class InsecureSeededSource(NoiseSource):
    """Reproducible bytes for tests and replay reports. Whoever knows the seed knows the noise: no privacy.

    The raw output of Philox under the key `seed` (0 to 2**128 - 1), which is the same on every version of numpy.
    """

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Philox(key=seed)

    def random_bytes(self, count: int) -> bytes:
        words = self._generator.random_raw(-(-count // 8))
        return words.astype("<u8").tobytes()[:count]


SYSTEM = SystemSource()
"""Where a mechanism that was given no source draws from."""


def discrete_laplace(scale: Rational, size: Size, source: NoiseSource | None = None) -> npt.NDArray[np.int64]:
    """Exact discrete Laplace noise, `P(X = x)` proportional to `exp(-|x| / scale)`.

    A float scale stands for the rational it is. Guarantee: added to an integer vector of L1 sensitivity `s` the noise
    gives `s / scale` differential privacy (Ghosh, Roughgarden, Sundararajan 2009). The distribution is that of Canonne,
    Kamath, Steinke 2020, drawn another way. With `q = exp(-1/scale)`, X is 0 with probability `(1 - q) / (1 + q)`, else
    a random sign times `1 + G`, where `P(G = k) = (1 - q) q^k`.

    For `k = t 2^K + sum of k_i 2^i`, `q^k = (q^(2^K))^t * product of (q^(2^i))^(k_i)` has one factor for each low bit
    and one for t, so these are independent: `P(k_i = 1) = 1 / (1 + exp(2^i / scale))`, and t is geometric in `q^(2^K)`.

    No candidate is rejected, so the work hardly depends on the values drawn. Samples are modulo 2**64: at a scale of
    2**53 one in exp(1024) wraps, and a wrapped sum of count and noise is still a function of the exact sum. At larger
    scales the samples are Python integers of any length, in an array of objects; `saturated` makes int64 of sums.
    """
    exact_scale = _scale_of(scale)
    sampler = _laplace_sampler(exact_scale)
    source = SYSTEM if source is None else source
    if exact_scale > LARGEST_SCALE:
        return _wide_laplace(sampler, size, source)
    noise = np.empty(size, dtype=np.int64)
    flat = noise.reshape(-1)
    for start in range(0, flat.size, _CHUNK_LANES):
        chunk = flat[start : start + _CHUNK_LANES]
        sampler.fill(chunk, source)
    return noise


def saturated(noisy: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Sums of integers and `discrete_laplace`, brought back to int64 where its samples were longer.

    It is applied to what is already noisy, so it costs nothing; the noise alone must never be cut.
    """
    if noisy.dtype == np.int64:
        return noisy
    return np.clip(noisy, -_LARGEST_SUM, _LARGEST_SUM).astype(np.int64)


def bernoulli_exp(exponent: Rational, size: Size, source: NoiseSource | None = None) -> npt.NDArray[np.bool_]:
    """Exact Bernoulli(exp(-exponent)) trials, for a rational exponent of at least zero."""
    value = _rational(exponent, "exponent")
    if value < 0:
        raise ValueError("exponent must not be negative: exp(-exponent) is to be a probability")
    if value == 0:
        return np.ones(size, dtype=np.bool_)
    trials = _exponential_trials(value)
    source = SYSTEM if source is None else source
    outcomes = np.empty(size, dtype=np.bool_)
    flat = outcomes.reshape(-1)
    for start in range(0, flat.size, _CHUNK_LANES):
        chunk = flat[start : start + _CHUNK_LANES]
        chunk[:] = trials.draw(chunk.size, source)[0]
    return outcomes


def bernoulli_exp_multiples(
    multiples: npt.NDArray[np.integer], unit: Rational, source: NoiseSource | None = None
) -> npt.NDArray[np.bool_]:
    """One exact Bernoulli(exp(-multiple * unit)) trial for every multiple, integers of at least zero.

    `exp(-multiple * unit)` is the product of `exp(-2^i * unit)` over the binary digits i of the multiple, so the trial
    succeeds when one trial for each digit does. The highest digit is tried first, since it fails most.
    """
    value = _rational(unit, "unit")
    if value <= 0:
        raise ValueError("unit must be positive")
    if multiples.size and multiples.min() < 0:
        raise ValueError("multiples must not be negative")
    source = SYSTEM if source is None else source
    remaining = multiples.astype(np.uint64).reshape(-1)
    outcomes = np.ones(remaining.size, dtype=np.bool_)
    for digit in reversed(range(int(remaining.max(initial=0)).bit_length())):
        lanes = np.flatnonzero((remaining >> np.uint64(digit)) & outcomes)
        if lanes.size:
            outcomes[lanes] = _exponential_trials(value * 2**digit).draw(lanes.size, source)[0]
    return outcomes.reshape(multiples.shape)


def uniform_below(bound: int, size: Size, source: NoiseSource | None = None) -> npt.NDArray[np.int64]:
    """Exact uniform integers in `0 .. bound - 1`, by rejection and so without modulo bias; `bound` is 1 to 2**63."""
    if bound < 1:
        raise ValueError("bound must be at least 1")
    if bound > 2**63:
        raise OverflowError("bound must be at most 2**63, so that every result fits an int64")
    source = SYSTEM if source is None else source
    digits = (bound - 1).bit_length()
    word = np.dtype(f"<u{next(width for width in (1, 2, 4, 8) if 8 * width >= digits)}")
    mask = word.type((1 << digits) - 1)
    values = np.zeros(size, dtype=np.int64)
    flat = values.reshape(-1)
    lanes = np.arange(flat.size if digits else 0)
    while lanes.size:
        candidates = np.frombuffer(source.random_bytes(lanes.size * word.itemsize), dtype=word) & mask
        kept = candidates <= bound - 1
        flat[lanes[kept]] = candidates[kept]
        lanes = lanes[~kept]
    return values


class _Trials:
    """Independent exact Bernoulli trials: a row for each probability, a lane for each sample."""

    def __init__(self, probabilities: Sequence[Probability]) -> None:
        self._probabilities = tuple(probabilities)
        self._first = np.array([p.leading_digits(_FIRST_DIGITS) for p in probabilities], dtype=np.uint8)[:, np.newaxis]
        self._next = np.array([p.digits(_FIRST_DIGITS, _NEXT_DIGITS) for p in probabilities], dtype=np.uint64)

    def draw(self, lanes: int, source: NoiseSource) -> npt.NDArray[np.bool_]:
        """Outcomes of shape (rows, lanes): random digits below those of the probability."""
        rows = len(self._probabilities)
        words = np.frombuffer(source.random_bytes(rows * lanes), dtype=np.uint8).reshape(rows, lanes)
        below = words < self._first
        ties = np.flatnonzero(words == self._first)
        if ties.size:
            self._settle(below.reshape(-1), ties, lanes, source)
        return below

    def _settle(
        self, below: npt.NDArray[np.bool_], ties: npt.NDArray[np.intp], lanes: int, source: NoiseSource
    ) -> None:
        """Decide the lanes whose digits were equal so far by the digits that follow."""
        expected = self._next[ties // lanes]
        position = _FIRST_DIGITS
        while True:
            words = np.frombuffer(source.random_bytes(8 * ties.size), dtype="<u8")
            below[ties] = words < expected
            ties = ties[words == expected]
            if not ties.size:
                return
            position += _NEXT_DIGITS
            deeper = [self._probabilities[row].digits(position, _NEXT_DIGITS) for row in (ties // lanes).tolist()]
            expected = np.array(deeper, dtype=np.uint64)


class _LaplaceSampler:
    """The trials of one scale: the low bits of the geometric part, lowest first, then its tail, then "not zero"."""

    def __init__(self, scale: Fraction) -> None:
        # Chosen so that a tail is rare (at most exp(-6)) and no trial is spent on bits that are hardly ever set.
        low_bits = 0
        while 2**low_bits < 6 * scale:
            low_bits += 1
        self._low_bits = low_bits
        self._tail = Probability(2**low_bits / scale)
        self._trials = _Trials(
            [
                *(Probability(2**bit / scale, odds=1) for bit in range(low_bits)),
                self._tail,
                Probability(1 / scale, odds=2),
            ]
        )

    def fill(self, chunk: npt.NDArray[np.int64], source: NoiseSource) -> None:
        outcomes = self._trials.draw(chunk.size, source)
        self._sum_low_bits(chunk, outcomes)
        tails = np.flatnonzero(outcomes[self._low_bits])
        while tails.size:
            chunk[tails] += 1 << self._low_bits
            tails = tails[_exponential_trials(self._tail.exponent).draw(tails.size, source)[0]]
        chunk += 1
        chunk *= outcomes[-1]
        signs = np.frombuffer(source.random_bytes(-(-chunk.size // 8)), dtype=np.uint8)
        np.negative(chunk, out=chunk, where=np.unpackbits(signs, count=chunk.size).view(np.bool_))

    def integers(self, lanes: int, source: NoiseSource) -> list[int]:
        """The samples that `fill` would draw from the same bytes, of any length."""
        outcomes = self._trials.draw(lanes, source)
        low = np.packbits(outcomes[: self._low_bits], axis=0, bitorder="little")
        values = [int.from_bytes(lane.tobytes(), "little") for lane in low.T]
        tails = np.flatnonzero(outcomes[self._low_bits])
        while tails.size:
            for lane in tails.tolist():
                values[lane] += 1 << self._low_bits
            tails = tails[_exponential_trials(self._tail.exponent).draw(tails.size, source)[0]]
        signs = np.unpackbits(np.frombuffer(source.random_bytes(-(-lanes // 8)), dtype=np.uint8), count=lanes)
        drawn = zip(values, outcomes[-1].tolist(), signs.tolist(), strict=True)
        return [(-1 - value if sign else 1 + value) if nonzero else 0 for value, nonzero, sign in drawn]

    def _sum_low_bits(self, chunk: npt.NDArray[np.int64], outcomes: npt.NDArray[np.bool_]) -> None:
        """Eight bits at a time are put together in bytes, which is far cheaper than in 64-bit words."""
        rows = outcomes.view(np.uint8)
        chunk[:] = 0
        for lowest in range((self._low_bits - 1) // 8 * 8, -1, -8):
            byte = np.zeros(chunk.size, dtype=np.uint8)
            for bit in reversed(range(lowest, min(lowest + 8, self._low_bits))):
                byte += byte
                byte |= rows[bit]
            chunk <<= 8
            chunk |= byte


def _wide_laplace(sampler: _LaplaceSampler, size: Size, source: NoiseSource) -> npt.NDArray[np.int64]:
    """Typed as its callers see it: arrays of objects add up and compare like those of int64."""
    noise = np.empty(size, dtype=object)
    flat = noise.reshape(-1)
    for start in range(0, flat.size, _WIDE_LANES):
        lanes = min(_WIDE_LANES, flat.size - start)
        flat[start : start + lanes] = sampler.integers(lanes, source)
    return noise


@lru_cache(maxsize=256)
def _laplace_sampler(scale: Fraction) -> _LaplaceSampler:
    return _LaplaceSampler(scale)


@lru_cache(maxsize=4096)
def _exponential_trials(exponent: Fraction) -> _Trials:
    return _Trials([Probability(exponent)])


def _rational(value: Rational, name: str) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, float | Integral | Fraction | Decimal):
        raise TypeError(f"{name} must be a float, int, Fraction or Decimal")
    try:
        return Fraction(int(value)) if isinstance(value, Integral) else Fraction(value)
    except (ValueError, OverflowError):
        raise ValueError(f"{name} must be a finite number") from None


def _scale_of(scale: Rational) -> Fraction:
    value = _rational(scale, "scale")
    if value <= 0:
        raise ValueError("scale must be positive: noise of scale zero protects nobody")
    return value
