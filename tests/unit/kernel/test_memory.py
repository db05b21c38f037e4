"""Blocks of memory for copies: never shared by two that live, used again when one is gone."""

from __future__ import annotations

import gc

import numpy as np

from wattflow.kernel import handle


def test_a_block_is_used_again_only_when_nothing_lies_in_it() -> None:
    handle._spare.clear()
    first = handle.block(3 << 20)
    address = first.ctypes.data
    part = first[100:200].view(np.int32)
    del first
    gc.collect()
    second = handle.block(3 << 20)
    assert second.ctypes.data != address, "a part of it is still in use"
    second[:] = 7
    assert not np.shares_memory(second, part)
    del part
    gc.collect()
    assert handle.block(3 << 20).ctypes.data == address
    gc.collect()
    assert len(handle._spare) <= 2


def test_a_small_or_much_larger_block_is_not_kept_for_it() -> None:
    handle._spare.clear()
    del_me = handle.block(100)
    del del_me
    assert handle._spare == []
    big = handle.block(8 << 20)
    del big
    assert handle.block(2 << 20).nbytes == 2 << 20 and handle._spare == []
