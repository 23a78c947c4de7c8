"""The key-value store."""

from __future__ import annotations

from coord_sim.core.status import Code
from tests.conformance.outcome import Outcome
from tests.conformance.scenario import ALL, Job, scenario

MESSAGE_BYTES_MAX = 3072
MUCH_S = 15.0
"""Time to move some megabytes on a busy machine."""


def entries(outcome: Outcome) -> list[tuple[str, bytes]]:
    """What a directory read answered."""
    listed: list[tuple[str, bytes]] = outcome.answer["entries"]
    return listed


@scenario("16", tasks=1, callers=ALL)
async def keys_are_normalised(job: Job) -> None:
    """Slashes are normalised, and values overwritten only on demand."""
    (a,) = await job.register_all()
    await job.ok("insert a/b", a.insert("a/b", b"1"))
    for key, value in (("a/b", b"2"), ("/a//b/", b"2"), ("a/b", b"1")):
        await job.fails(
            f"insert {key} again={value!r}",
            a.insert(key, value),
            Code.ALREADY_EXISTS,
            "key a/b already exists",
            "",
        )
    await job.ok("overwrite", a.insert("a/b", b"2", overwrite=True))
    await job.ok("try //a///b", a.try_get("//a///b"), key="//a///b", value=b"2")
    await job.ok("get /a/b/", a.get("/a/b/"), key="/a/b/", value=b"2")
    for key in ("A/b", "a/./b", "a b", "ä"):
        await job.fails(f"try {key!r}", a.try_get(key), Code.NOT_FOUND, "not found")


@scenario("17", tasks=1, callers=ALL)
async def directories_list_what_is_below(job: Job) -> None:
    """A directory lists what is below it, in order; the root lists nothing."""
    (a,) = await job.register_all()
    for key in ("a/bb", "a", "a/b/c", "a!x", "a/b", "ab", "z/é", "z/\x7f"):
        await job.ok(f"insert {key!r}", a.insert(key, key.encode()))
    below = [(key, key.encode()) for key in ("a/b", "a/b/c", "a/bb")]
    for directory in ("a", "a/", "/a"):
        listed = await job.ok(f"dir {directory}", a.directory(directory), directory_key="")
        assert entries(listed) == below
    await job.ok("dir a/b", a.directory("a/b"), entries=[("a/b/c", b"a/b/c")])
    await job.ok("dir z", a.directory("z"))
    for directory in ("", "/", "none"):
        await job.ok(f"dir {directory!r}", a.directory(directory), entries=[])


@scenario("18", tasks=1, callers=ALL)
async def deleting_takes_what_is_below(job: Job) -> None:
    """Deleting a key deletes what is below it; deleting the root deletes the empty key alone."""
    (a,) = await job.register_all()
    for key in ("a", "a/b", "a/b/c", "a/bb", ""):
        await job.ok(f"insert {key!r}", a.insert(key, b"v"))
    delete = a.delete("a/b", is_directory=False) if job.arm.raw else a.delete("a/b")
    await job.ok("delete a/b", delete)
    await job.ok("dir a", a.directory("a"), entries=[("a/bb", b"v")])
    await job.ok("delete the root", a.delete(""))
    await job.ok("try a", a.try_get("a"), value=b"v")
    await job.fails("try the empty key", a.try_get(""), Code.NOT_FOUND)
    await job.ok("delete a missing key", a.delete("none"))


@scenario("19", tasks=1, callers=ALL)
async def deleting_wakes_nobody(job: Job) -> None:
    """A waiting read survives a deletion, and is served by the next insert."""
    (a,) = await job.register_all()
    get, other = a.get("w"), a.get("//w")
    await job.waits("get w", get, other)
    await job.ok("delete w", a.delete("w"))
    await job.waits("get w, after the deletion", get, other)
    await job.ok("insert /w/", a.insert("/w/", b"here"))
    await job.ok("get w", get, key="w", value=b"here")
    await job.ok("get //w", other, key="//w", value=b"here")


@scenario("20", tasks=1, callers=ALL)
async def increments_count_as_inserts(job: Job) -> None:
    """An increment of a missing key starts from 0, and wakes readers."""
    (a,) = await job.register_all()
    get = a.get("n")
    await job.waits("get n", get)
    await job.ok("increment by 5", a.increment("n", 5), value=b"5")
    await job.ok("get n", get, value=b"5")
    await job.ok("increment by -8", a.increment("/n", -8), key="/n", value=b"-3")
    await job.ok("try n", a.try_get("n"), value=b"-3")


@scenario("21", tasks=1, callers=ALL)
async def counters_are_text(job: Job) -> None:
    """Counters are decimal text, read in 32 bits and summed in 64."""
    (a,) = await job.register_all()
    await job.ok("insert 2^31-1", a.insert("n", b"2147483647"))
    await job.ok("increment beyond 32 bits", a.increment("n", 1), value=b"2147483648")
    await job.fails("increment by 0", a.increment("n", 0), Code.FAILED_PRECONDITION, "parse value")
    await job.ok("insert blanks", a.insert("m", b" +7 "))
    await job.ok("increment it", a.increment("m", 1), value=b"8")
    for number, text in enumerate((b"abc", b"", b"1.5", b"0x10", b"1 2", b"-", b"+-1")):
        key = f"bad{number}"
        await job.ok(f"insert {text!r}", a.insert(key, text))
        await job.fails(
            f"increment {text!r}", a.increment(key, 1), Code.FAILED_PRECONDITION, "parse value"
        )
        await job.ok(f"try {text!r}", a.try_get(key), value=text)
    for number, text in enumerate((b"-0", b"007", b"\t5\n", b"-2147483648")):
        key = f"good{number}"
        await job.ok(f"insert {text!r}", a.insert(key, text))
        await job.ok(f"increment {text!r}", a.increment(key, 1))
    await job.ok("insert 1", a.insert("w", b"1"))
    wrapped = b"%d" % -(2**63)
    await job.ok("increment by 2^63-1", a.increment("w", 2**63 - 1), value=wrapped)


@scenario("22", tasks=1, callers=ALL)
async def empty_keys_and_raw_bytes_are_fine(job: Job) -> None:
    """The empty key, the empty value and all bytes are values like others."""
    (a,) = await job.register_all()
    await job.ok("insert the empty key", a.insert("", b""))
    await job.ok("try the empty key", a.try_get(""), value=b"")
    await job.ok("try /", a.try_get("/"), key="/", value=b"")
    await job.fails("insert // again", a.insert("//", b"x"), Code.ALREADY_EXISTS, payloads="")
    every = bytes(range(256))
    await job.ok("insert all bytes", a.insert("k", every))
    await job.ok("try all bytes", a.try_get("k"), value=every)


@scenario("23", tasks=1, callers=ALL, alone=True)
async def values_may_be_large(job: Job) -> None:
    """Values beyond gRPC's usual limit pass; long messages are cut."""
    (a,) = await job.register_all()
    for megabytes in (5, 40) if job.arm.raw else (5,):
        value = bytes([megabytes]) * (megabytes * 1_000_000)
        await job.ok(f"insert {megabytes} MB", a.insert(f"k{megabytes}", value), patience_s=MUCH_S)
        await job.ok(f"get {megabytes} MB", a.get(f"k{megabytes}"), patience_s=MUCH_S, value=value)
    missing = await job.fails("try a long key", a.try_get("x" * 5000), Code.NOT_FOUND)
    if job.arm.raw:
        assert missing.message.endswith(" ... [truncated]")
        assert len(missing.message.removesuffix(" ... [truncated]").encode()) <= MESSAGE_BYTES_MAX


@scenario("24", tasks=2, recoverable=True, callers=ALL)
async def the_store_asks_for_no_membership(job: Job) -> None:
    """A task that left reads and writes on."""
    _, b = await job.register_all()
    await job.ok("shutdown b", b.shutdown())
    await job.ok("insert by b", b.insert("k", b"v"))
    await job.ok("try by b", b.try_get("k"), value=b"v")


@scenario("k1", tasks=2, callers=ALL)
async def one_process_writes_and_all_read(job: Job) -> None:
    """A value that one task sets is read by all, also by those that waited for it."""
    a, b = await job.register_all()
    waiting = b.get("greeting")
    await job.waits("get by b", waiting)
    await job.ok("insert by a", a.insert("greeting", b"hello"))
    await job.ok("get by b", waiting, value=b"hello")
    await job.ok("get by a", a.get("greeting"), value=b"hello")
    await job.ok("overwrite by b", b.insert("greeting", b"bye", overwrite=True))
    await job.ok("get by a again", a.get("greeting"), value=b"bye")


@scenario("k2", tasks=2, callers=ALL, alone=True)
async def a_directory_is_complete_after_a_barrier(job: Job) -> None:
    """Keys set before a barrier are in every directory read after it, nested and large ones too."""
    a, b = await job.register_all()
    written = {"d/one": b"1", "d/two": b"2", "d/nested/three": b"3"}
    written |= {f"d/large{number}": bytes([number]) * 2**20 for number in range(10)}
    for key, value in written.items():
        await job.ok(f"insert {key}", a.insert(key, value), patience_s=MUCH_S)
    arrival = a.barrier("written", timeout_s=10)
    await job.ok("barrier of b", b.barrier("written", timeout_s=10))
    await job.ok("barrier of a", arrival)
    listed = await job.ok("dir d/", b.directory("d/"), patience_s=MUCH_S)
    assert entries(listed) == sorted(written.items())


@scenario("k3", tasks=1)
async def keys_end_at_nul(job: Job) -> None:
    """A key ends at its first NUL character."""
    (a,) = await job.register_all()
    await job.ok("insert x NUL y", a.insert("x\0y", b"1"))
    await job.fails("insert x", a.insert("x", b"2"), Code.ALREADY_EXISTS, "key x already", "")
    await job.ok("try x NUL z", a.try_get("x\0z"), key="x\0z", value=b"1")
    await job.ok("insert NUL y", a.insert("\0y", b"3"))
    await job.ok("try the empty key", a.try_get(""), value=b"3")
    await job.ok("insert d/k", a.insert("d/k", b"4"))
    await job.ok("dir d NUL", a.directory("d\0/x"), entries=[("d/k", b"4")])
    await job.ok("increment n NUL", a.increment("n\0", 5))
    await job.ok("delete x NUL", a.delete("x\0q"))
    await job.fails("try x", a.try_get("x"), Code.NOT_FOUND)
    await job.ok("try n", a.try_get("n"), value=b"5")
