"""The kernels as circuits. All speak one stream: 64-bit words in, one a cycle, the last one marked; 64-bit words out;
done.

Needs Amaranth (`wattflow[fpga]`). A kernel of your own subclasses `Kernel` and is entered in ``registry.KERNELS``.
"""

from __future__ import annotations

from amaranth.hdl import Const, Elaboratable, Module, Mux, Signal, signed
from amaranth.hdl._ast import Value
from amaranth.lib.memory import Memory

LANES = 2
TAPS = 16
BINS = 256


class Kernel(Elaboratable):  # type: ignore[misc]
    """Ports of every kernel."""

    def __init__(self) -> None:
        self.i_valid = Signal()
        self.i_last = Signal()
        self.i_data = Signal(64)
        self.o_valid = Signal()
        self.o_done = Signal()
        self.o_data = Signal(64)

    @property
    def ports(self) -> list[Signal]:
        """In the order of the stream."""
        return [self.i_valid, self.i_last, self.i_data, self.o_valid, self.o_done, self.o_data]


def _sixteen(word: Value, place: int) -> Value:
    """A signed 16-bit number out of a word."""
    return word[16 * place : 16 * (place + 1)].as_signed()


class DotProduct(Kernel):
    """Σ a·b over two lanes of 16-bit numbers: a word holds a0, b0, a1, b1."""

    def elaborate(self, platform: object) -> Module:
        """Multiply, add up, one word a cycle."""
        m = Module()
        total = Signal(signed(64))
        products = [Signal(signed(32), name=f"product{lane}") for lane in range(LANES)]
        valid, last, told = Signal(), Signal(), Signal()
        m.d.sync += [valid.eq(self.i_valid), last.eq(self.i_valid & self.i_last)]
        for lane, product in enumerate(products):
            m.d.sync += product.eq(_sixteen(self.i_data, 2 * lane) * _sixteen(self.i_data, 2 * lane + 1))
        with m.If(valid):
            m.d.sync += total.eq(total + products[0] + products[1])
        m.d.sync += [told.eq(last), self.o_valid.eq(told), self.o_done.eq(told), self.o_data.eq(total)]
        return m


class Fir(Kernel):
    """A finite impulse response filter of 16 taps: the first 16 words are coefficients, the rest samples."""

    def elaborate(self, platform: object) -> Module:
        """Shift the samples by, multiply all taps, add them in one cycle."""
        m = Module()
        taps = [Signal(signed(16), name=f"tap{n}") for n in range(TAPS)]
        line = [Signal(signed(16), name=f"sample{n}") for n in range(TAPS)]
        loaded = Signal(range(TAPS + 1))
        fresh, last, told = Signal(), Signal(), Signal()
        with m.If(self.i_valid & (loaded != TAPS)):
            for n, tap in enumerate(taps):
                with m.If(loaded == n):
                    m.d.sync += tap.eq(_sixteen(self.i_data, 0))
            m.d.sync += loaded.eq(loaded + 1)
        sample = self.i_valid & (loaded == TAPS)
        with m.If(sample):
            m.d.sync += line[0].eq(_sixteen(self.i_data, 0))
            m.d.sync += [line[n].eq(line[n - 1]) for n in range(1, TAPS)]
        m.d.sync += [fresh.eq(sample), last.eq(self.i_valid & self.i_last), told.eq(last), self.o_done.eq(told)]
        total = Const(0, signed(64))
        for tap, value in zip(taps, line, strict=True):
            total = total + tap * value
        m.d.sync += [self.o_valid.eq(fresh), self.o_data.eq(total)]
        return m


class ByteHistogram(Kernel):
    """How often each of 256 values occurs: one value a word; after the last, 256 counts come out."""

    def elaborate(self, platform: object) -> Module:
        """A memory of counters, read and written back in one cycle; then read them all."""
        m = Module()
        m.submodules.bins = bins = Memory(shape=32, depth=BINS, init=[])
        read, write = bins.read_port(domain="comb"), bins.write_port()
        out, telling = Signal(range(BINS + 1)), Signal()
        m.d.comb += [read.addr.eq(Mux(telling, out[:8], self.i_data[:8])), write.addr.eq(self.i_data[:8])]
        m.d.comb += [write.data.eq(read.data + 1), write.en.eq(self.i_valid & ~telling)]
        with m.If(self.i_valid):
            m.d.sync += telling.eq(self.i_last)
        m.d.sync += [self.o_valid.eq(0), self.o_done.eq(0)]
        with m.If(telling & (out != BINS)):
            m.d.sync += [
                self.o_valid.eq(1),
                self.o_data.eq(read.data),
                out.eq(out + 1),
                self.o_done.eq(out == BINS - 1),
            ]
        return m
