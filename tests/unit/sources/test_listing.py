"""Finding new objects in a store that is only a sorted list, with restarts at every point."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windsock.sources import _listing, _listing_memory
from windsock.sources._listing import Found, Item, Listing, ListingOptions, Page, matching

NOON = dt.datetime(2026, 11, 15, 12, tzinfo=dt.UTC)


class Store:
    """Objects by key, listed in pages."""

    def __init__(self, page: int = 1000) -> None:
        self.objects: dict[str, Item] = {}
        self.page = page
        self.listed = 0

    def put(self, key: str, second: float = 0, etag: str = "e") -> None:
        self.objects[key] = Item(key, NOON + dt.timedelta(seconds=second), 1, etag)

    async def fetch(self, token: Any, after: str | None) -> Page:
        start = token or after or ""
        keys = sorted(key for key in self.objects if key > start)
        self.listed += len(keys[: self.page])
        page = [self.objects[key] for key in keys[: self.page]]
        return Page(page, page[-1].key if len(keys) > self.page else None)


def restarted(cursor: Any) -> Any:
    """The cursor as the log would give it back."""
    return json.loads(json.dumps(cursor))


async def take_all(listing: Listing) -> tuple[list[Found], Any]:
    """All that a sweep finds, and the last cursor."""
    found: list[Found] = []
    cursor = None
    while True:
        while taken := await listing.take():
            found += taken[0]
            cursor = taken[1] or cursor
        if not listing._sweeping:
            return found, cursor
        await listing.look()


async def sweep(store: Store, cursor: Any = None, **options: Any) -> tuple[list[str], Any]:
    """What a new reader finds, and the cursor after that."""
    listing = Listing(store.fetch, ListingOptions(**options), restarted(cursor))
    first = await listing.connect()
    found, after = await take_all(listing)
    return [each.item.key for each in found], after or first or cursor


async def again(listing: Listing) -> list[tuple[str, str]]:
    """What the same reader finds next."""
    await listing.look()
    return [(each.change, each.item.key) for each in (await take_all(listing))[0]]


async def test_oldest_first() -> None:
    """Objects come in the order of their dates, and of their keys where dates are equal."""
    store = Store(page=2)
    for key, second in (("a", 3), ("b", 1), ("c", 2), ("d", 1)):
        store.put(key, second)
    assert (await sweep(store))[0] == ["b", "d", "c", "a"]


@pytest.mark.parametrize("order", ["time", "key"])
@pytest.mark.parametrize("count", [3, 400, 3000])
async def test_a_restart_finds_only_what_is_new(order: str, count: int) -> None:
    """Thousands of keys with the same second, more of them after a restart: each is announced once."""
    store = Store()
    for number in range(count):
        store.put(f"k{number:05}")
    found, cursor = await sweep(store, order=order)
    assert found == sorted(store.objects)
    assert len(json.dumps(cursor)) < 16_000
    new = [f"k{number:05}" for number in range(count, count + 50)]
    for key in new:
        store.put(key)
    assert (await sweep(store, cursor, order=order))[0] == new


async def test_a_restart_between_two_deliveries() -> None:
    """What was delivered before a restart in the middle of a burst does not come again; the rest does."""
    store = Store()
    for number in range(2500):
        store.put(f"k{number:05}")
    listing = Listing(store.fetch, ListingOptions(), None)
    await listing.connect()
    taken = await listing.take()
    assert taken is not None
    rest, _ = await sweep(store, taken[1])
    assert [each.item.key for each in taken[0]] + rest == sorted(store.objects)


async def test_a_late_object_among_few() -> None:
    """An object that appears with an older date than others, as a long upload does, is found."""
    store = Store()
    for number in range(100):
        store.put(f"k{number:05}", number)
    _, cursor = await sweep(store, late=3600)
    store.put("late", 1)
    store.put("k00000a", 0)
    assert (await sweep(store, cursor, late=3600))[0] == ["k00000a", "late"]


async def test_a_late_object_among_thousands() -> None:
    """Past what a cursor can list, late objects are still found, and nothing else comes again."""
    store = Store()
    for number in range(5000):
        store.put(f"k{number:05}", number / 10)
    _, cursor = await sweep(store, late=3600)
    assert "sums" in cursor["recent"]
    store.put("late", 1)
    assert (await sweep(store, cursor, late=3600))[0] == ["late"]


async def test_deletions_among_thousands() -> None:
    """Where a sum no longer adds up, its objects come again, and a late one among them is not missed."""
    store = Store()
    for number in range(5000):
        store.put(f"k{number:05}", number / 10)
    _, cursor = await sweep(store, late=3600)
    for number in range(0, 5000, 100):
        del store.objects[f"k{number:05}"]
    store.put("late", 1)
    found, _ = await sweep(store, cursor, late=3600)
    assert "late" in found
    assert len(found) < 1500


async def test_later_than_late() -> None:
    """The mark trails by ``late``: what appears with a date before it is taken for known."""
    store = Store()
    store.put("a", 0)
    store.put("b", 1000)
    _, cursor = await sweep(store, late=100)
    store.put("c", 100)
    store.put("d", 950)
    assert (await sweep(store, cursor, late=100))[0] == ["d"]


async def test_overwritten() -> None:
    """A reader tells overwritten from created; one that was restarted meanwhile calls it created."""
    store = Store()
    store.put("a", 0, "one")
    listing = Listing(store.fetch, ListingOptions(), None)
    await listing.connect()
    assert [each.change for each in (await take_all(listing))[0]] == ["created"]
    store.put("a", 0, "two")  # within the same second
    store.put("b", 1)
    assert await again(listing) == [("overwritten", "a"), ("created", "b")]
    del store.objects["b"]
    assert await again(listing) == []
    store.put("b", 2)
    assert await again(listing) == [("created", "b")]
    assert await again(listing) == []


async def test_what_is_known_costs_no_memory() -> None:
    """Objects older than the mark leave nothing in memory and nothing in the cursor."""
    store = Store()
    for number in range(2000):
        store.put(f"k{number:05}", number)
    listing = Listing(store.fetch, ListingOptions(late=10), None)
    await listing.connect()
    _, cursor = await take_all(listing)
    assert len(listing._memory._recent) < 20  # type: ignore[union-attr]
    assert len(json.dumps(cursor)) < 400


async def test_a_backlog_past_one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large backlog comes in rounds, in one listing, and a restart in the middle goes on from there."""
    monkeypatch.setattr(_listing, "ROUND", 2000)
    store = Store()
    for number in range(7000):
        store.put(f"k{number:05}", -number)
    listing = Listing(store.fetch, ListingOptions(late=100), None)
    await listing.connect()
    delivered: list[str] = []
    cursor = None
    for _ in range(4):  # two rounds
        taken = await listing.take()
        assert taken is not None
        delivered += [each.item.key for each in taken[0]]
        cursor = taken[1] or cursor
        await listing.look()
    store.listed = 0
    store.put("k00000a", 1)  # where the listing has been already
    rest, cursor = await sweep(store, cursor, late=100)
    assert store.listed == 3000
    assert sorted(delivered + rest) == sorted(store.objects.keys() - {"k00000a"})
    assert (await sweep(store, cursor, late=100))[0] == ["k00000a"]


async def test_a_backlog_of_the_same_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """In rounds of objects that the cursor can only sum up, a restart repeats nothing and misses nothing."""
    monkeypatch.setattr(_listing, "ROUND", 2000)
    store = Store()
    for number in range(7000):
        store.put(f"k{number:05}")
    listing = Listing(store.fetch, ListingOptions(), None)
    await listing.connect()
    delivered: list[str] = []
    cursor = None
    for _ in range(4):
        taken = await listing.take()
        assert taken is not None
        delivered += [each.item.key for each in taken[0]]
        cursor = taken[1] or cursor
        await listing.look()
    assert len(json.dumps(cursor)) < 16_000
    rest, cursor = await sweep(store, cursor)
    assert delivered + rest == sorted(store.objects)
    assert (await sweep(store, cursor))[0] == []


async def test_by_key_lists_only_the_end() -> None:
    """With growing keys a sweep asks for the last few keys and what comes behind them."""
    store = Store()
    for number in range(5000):
        store.put(f"k{number:05}")
    _, cursor = await sweep(store, order="key")
    store.listed = 0
    store.put("k05001")
    assert (await sweep(store, cursor, order="key"))[0] == ["k05001"]
    assert store.listed == _listing_memory.TAIL + 1


async def test_by_key_with_several_writers() -> None:
    """A key that appears a little behind others is not missed."""
    store = Store()
    for number in range(500):
        store.put(f"k{number:05}")
    del store.objects["k00450"]
    _, cursor = await sweep(store, order="key")
    store.put("k00450")
    assert (await sweep(store, cursor, order="key"))[0] == ["k00450"]


async def test_by_key_passes_what_is_not_wanted() -> None:
    """Keys that the pattern leaves out are not listed again and again."""
    store = Store()
    store.put("a.csv")
    for number in range(3000):
        store.put(f"k{number:05}.log")
    listing = Listing(store.fetch, ListingOptions(order="key", pattern="*.csv"), None)
    await listing.connect()
    assert [each.item.key for each in (await take_all(listing))[0]] == ["a.csv"]
    await again(listing)
    store.listed = 0
    await again(listing)
    assert store.listed == _listing_memory.TAIL


@pytest.mark.parametrize("order", ["time", "key"])
async def test_start_at_the_latest(order: str) -> None:
    """With start='latest' what is there is known, and a restart before the first event knows it, too."""
    store = Store()
    for number in range(1500):
        store.put(f"k{number:05}")
    found, cursor = await sweep(store, order=order, start="latest")
    assert (found, cursor is None) == ([], False)
    store.put("k99999")
    assert (await sweep(store, cursor, order=order, start="latest"))[0] == ["k99999"]


@pytest.mark.parametrize("order", ["time", "key"])
async def test_settling(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object is held back until it has not changed for a while, and a restart does not forget it."""
    clock = [1000.0]
    monkeypatch.setattr(_listing.time, "monotonic", lambda: clock[0])
    store = Store()
    store.put("a", 0, "one")
    listing = Listing(store.fetch, ListingOptions(order=order, settle=10, late=0), None)  # type: ignore[arg-type]
    await listing.connect()
    assert await take_all(listing) == ([], None)
    assert await listing.waiting() == 1
    clock[0] += 9
    store.put("a", 9, "two")
    store.put("b", 100)
    assert await again(listing) == []
    clock[0] += 10
    assert [key for _, key in await again(listing)] == (["a", "b"] if order == "time" else ["a"])


@pytest.mark.parametrize(
    ("prefix", "pattern", "key", "wanted"),
    [
        ("", "**", "a/b/c.csv", True),
        ("in/", "*.csv", "in/a.csv", True),
        ("in/", "*.csv", "in/sub/a.csv", False),
        ("in/", "**/*.csv", "in/sub/deep/a.csv", True),
        ("in/", "**/*.csv", "in/a.csv", True),
        ("in/day-", "*/x.csv", "in/day-1/x.csv", True),
        ("in/", "*", "out/a", False),
        ("in/", "*", "in/", False),
        ("in/", "**", "in/folder/", False),
        ("", "data-[0-9].json", "data-7.json", True),
        ("", "**/_SUCCESS", "day=1/hour=2/_SUCCESS", True),
    ],
)
def test_which_keys_are_wanted(prefix: str, pattern: str, key: str, wanted: bool) -> None:
    """Globs are relative to the prefix; a star stays inside one level; folders are no objects."""
    assert matching(prefix, pattern)(key) is wanted


keys = st.sampled_from([f"{letter}{number}" for letter in "abc" for number in range(4)])
puts = st.lists(st.tuples(keys, st.integers(0, 20), st.sampled_from("xy")), max_size=12)


@settings(max_examples=150, deadline=None)
@given(rounds=st.lists(st.tuples(puts, st.booleans()), min_size=1, max_size=6), page=st.integers(1, 5))
def test_every_version_that_is_seen_is_announced_once(
    rounds: list[tuple[list[tuple[str, int, str]], bool]], page: int
) -> None:
    """Whatever is written with whatever date, and whenever the reader restarts: each version comes once."""

    async def run() -> None:
        store, cursor = Store(page), None
        listing = Listing(store.fetch, ListingOptions(late=1000), None)
        await listing.connect()
        announced: Counter[Item] = Counter()
        expected: set[Item] = set()
        for written, restart in rounds:
            for put in written:
                store.put(*put)
            expected |= set(store.objects.values())
            if restart:
                listing = Listing(store.fetch, ListingOptions(late=1000), restarted(cursor))
                await listing.connect()
            else:
                await listing.look()
            found, after = await take_all(listing)
            cursor = after or cursor
            announced.update(_items(found))
        assert set(announced) == expected
        # A version that was overwritten and comes back as it was has been forgotten meanwhile.
        assert not no_version_twice(rounds) or max(announced.values(), default=1) == 1

    asyncio.run(run())


def _items(found: Iterable[Found]) -> list[Item]:
    return [each.item for each in found]


def no_version_twice(rounds: list[tuple[list[tuple[str, int, str]], bool]]) -> bool:
    """Whether no version is written twice."""
    written = [put for puts, _ in rounds for put in puts]
    return len(written) == len(set(written))
