"""What an exchange counts, and how long ranks in threads wait for each other."""

import gc
import threading
import time
import weakref

import pytest
import torch
import torch.distributed as dist

from ringcp.exchange import GRADS, KEYS, Distributed, InProcess, Mailbox, Receive, Send, Traffic


def message(*shape, dtype=torch.float32):
    return torch.ones(shape, dtype=dtype)


def test_traffic_counts_every_byte_and_message():
    traffic = Traffic()
    traffic.count([Send(1, message(3, 5)), Send(2, message(7, dtype=torch.bfloat16))])
    traffic.count([Send(1, message(2, dtype=torch.float64))])
    assert (traffic.bytes, traffic.messages) == (60 + 14 + 16, 3)


def test_a_new_exchange_has_counted_nothing():
    assert InProcess(0, Mailbox(1)).traffic == Traffic(bytes=0, messages=0)


def test_nothing_keeps_a_group_that_its_owner_destroyed():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    Distributed()
    group = weakref.ref(dist.group.WORLD)
    dist.destroy_process_group()
    gc.collect()
    assert group() is None


def test_channels_are_apart():
    mailbox = Mailbox(2, timeout=5)
    mailbox.put(0, 1, GRADS, message(1) * 2)
    mailbox.put(0, 1, KEYS, message(1))
    assert mailbox.take(0, 1, KEYS).item() == 1 and mailbox.take(0, 1, GRADS).item() == 2


def test_a_message_takes_its_latency():
    mailbox = Mailbox(2, timeout=5, latency=0.1)
    started = time.monotonic()
    mailbox.put(0, 1, KEYS, message(1))
    mailbox.take(0, 1, KEYS)
    assert 0.1 <= time.monotonic() - started < 4


def test_whoever_waits_too_long_says_for_whom():
    with pytest.raises(TimeoutError, match="rank 1 waited 0.05 s for a message of rank 0"):
        Mailbox(2, timeout=0.05).take(0, 1, KEYS)


def test_a_rank_that_stopped_ends_every_wait():
    stop = threading.Event()
    stop.set()
    with pytest.raises(TimeoutError, match="rank 1 gave up waiting for a message of rank 0"):
        Mailbox(2, timeout=60, stop=stop).take(0, 1, KEYS)


@pytest.mark.parametrize("wrong", [Receive(0, (3,), torch.float32, "cpu"), Receive(0, (2,), torch.float64, "cpu")])
def test_both_ends_must_agree_on_what_travels(wrong):
    mailbox = Mailbox(2, timeout=5)
    InProcess(0, mailbox).start([Send(1, message(2))], [])
    with pytest.raises(AssertionError):
        InProcess(1, mailbox).start([], [wrong])()
