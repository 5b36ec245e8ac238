"""The checklist as data, and the page that is made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from windsock.testing.library import Library, main

REFERENCE = Path(__file__).parents[2] / "reference"


def test_the_checklists_have_a_hundred_items() -> None:
    """Two lists of ten topics of five items, each with a unique file, four tags and four points."""
    library = Library(REFERENCE)
    assert [[len(topic.items) for topic in each.topics] for each in library.lists] == [[5] * 10] * 2
    items = [item for item, _ in library.items()]
    assert len({item.file for item in items}) == len({item.id for item in items}) == 100
    for item in items:
        assert len(item.tags) == 4
        assert item.tags[0] == "reference"
        assert item.tags[-1] in ("success", "failure", "anti-pattern")
        assert len(set(item.points)) == 4
        assert [int(part) for part in item.name.split("_")[:3]] == [int(part) for part in item.id.split(".")]


def test_the_index_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    """`reference/INDEX.md` is what `python -m windsock.testing.library` writes."""
    assert main(["--check", "--reference", str(REFERENCE)]) == 0, capsys.readouterr().err


def test_an_old_index_is_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing or changed page fails the check, and writing it mends that."""
    (tmp_path / "checklist.json").write_bytes((REFERENCE / "checklist.json").read_bytes())
    arguments = ["--reference", str(tmp_path)]
    assert main([*arguments, "--check"]) == 1
    assert "out of date" in capsys.readouterr().err
    assert main(arguments) == 0
    assert main([*arguments, "--check"]) == 0
    with (tmp_path / "INDEX.md").open("a") as page:
        page.write("more\n")
    assert main([*arguments, "--check"]) == 1


def test_the_index_says_what_is_written_and_what_it_watches(tmp_path: Path) -> None:
    """A written Dag is linked with its sources, the others are listed as not yet there."""
    (tmp_path / "checklist.json").write_bytes((REFERENCE / "checklist.json").read_bytes())
    dag = tmp_path / "watchers_117" / "117_01_01_watcher_basics.py"
    dag.parent.mkdir()
    dag.write_text("FilesAssetWatcher(name='a')\ntask(outlets=[b])\n")
    (dag.parent / "stray.py").touch()
    library = Library(tmp_path)
    rows = {line.split(" | ")[0].strip("| "): line for line in library.index().splitlines() if "| " in line}
    assert "(watchers_117/117_01_01_watcher_basics.py)" in rows["117.1.1"]
    assert rows["117.1.1"].endswith("| assets, files | written |")
    assert rows["117.1.2"].endswith("| | not yet |")
    assert library.strays() == [dag.parent.resolve() / "stray.py"]
