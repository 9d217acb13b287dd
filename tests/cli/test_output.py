import json

import pytest

from castore.cli.output import Output


def test_no_way_of_printing_lets_a_control_character_through(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output = Output(as_json=False)
    output.line("a\x1b\n")
    output.lines(["b\x9b", "c\r"])
    output.table(["D\x07"], [["d\u2028"]], empty="")
    output.table(["D"], [], empty="no\x1b")
    output.data({"e\x1b": "\u202e"})
    output.note("f\x1b\n")
    out, err = capsys.readouterr()
    assert all(line.isprintable() for line in (out + err).split("\n"))
    assert err == "castore: no\\x1b\nf\\x1b\\x0a\n"


def test_data_is_one_json_document(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=True).data([{"kernel": "gemm\u202e"}])
    assert json.loads(capsys.readouterr().out) == [{"kernel": "gemm\u202e"}]
