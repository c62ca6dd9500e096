"""Captured batches: what is recorded is what is read, and errors name file, line and field."""

import json

import pytest
import torch

from cases import captured, catalogue


def one(tmp_path, **line):
    path = tmp_path / "run.jsonl"
    path.write_text(json.dumps(line) + "\n")
    return captured.read(path)[0].at(2, "zigzag", "bf16")


@pytest.mark.parametrize("line", [
    {"documents": [[[1, 3], [2, 4], [0, 1]]]},
    {"document_ids": [[1, 1, 1, 2, 2, 2, 2, 0]]},
    {"document_ids": [1, 1, 1, 2, 2, 2, 2, 0]},
    {"document_lengths": [[3, 4]], "tokens": 8},
    {"cu_seqlens": [0, 3, 7], "tokens": 8},
    {"cu_seqlens": [[0, 3, 7]], "tokens": 8},
])
def test_documents_can_be_said_in_five_ways(tmp_path, line):
    assert one(tmp_path, **line).rows().documents.tolist() == [[1, 1, 1, 2, 2, 2, 2, 0]]


def test_position_ids_begin_again_with_each_document(tmp_path):
    case = one(tmp_path, position_ids=[[0, 1, 2, 0, 1, 0, 0, 1], list(range(8))])
    assert case.rows().documents.tolist() == [[1, 1, 1, 2, 2, 3, 4, 4], [1] * 8]


def test_empty_documents_and_repeated_tails_are_kept(tmp_path):
    case = one(tmp_path, cu_seqlens=[0, 3, 3, 8, 8, 8])
    assert case.rows().documents.tolist() == [[1, 1, 1, 3, 3, 3, 3, 3]]


def test_padding_as_mask_or_spans(tmp_path):
    mask = one(tmp_path, attention_mask=[[0, 1, 1, 0, 1, 0]])
    spans = one(tmp_path, padding=[[[0, 1], [3, 4], [5, 6]]], tokens=6)
    assert mask.rows().padding.tolist() == spans.rows().padding.tolist() == [[True, False, False, True, False, True]]


def test_everything_else_arrives(tmp_path):
    case = one(tmp_path, name="step-7", tokens=6, token_type_ids=[0, 1, 1, 0, 2, 0], window=4, heads=8, kv_heads=2,
               head_dim=64, value_dim=32, scale=0.1, note="from a run", variants=["vision.bounded", "window.inclusive"])
    assert case.id == "captured/step-7-zigzag-w2-bf16" and case.note == "from a run" and case.scale == 0.1
    assert (case.shape.heads, case.shape.kv_heads, case.shape.head_dim, case.shape.v_dim) == (8, 2, 64, 32)
    assert str(case.mask) == "causal & vision.bounded & window.inclusive(4)"
    assert case.rows().token_types.tolist() == [[0, 1, 1, 0, 2, 0]]
    assert str(one(tmp_path, tokens=6, causal=False).mask) == "full"


@pytest.mark.parametrize(("text", "message"), [
    ("{", "run.jsonl:1: not JSON"),
    ("[1]", "run.jsonl:1: a line must be a JSON object, got list"),
    ('{"tokens": 8, "windw": 3}', "run.jsonl:1: windw: no such field"),
    ('{"tokens": 0}', "run.jsonl:1: tokens: must be a whole number of at least 1, got 0"),
    ('{"heads": 4}', "run.jsonl:1: tokens: is missing"),
    ('{"tokens": 8}\n\n{"tokens": "8k"}', "run.jsonl:3: tokens: must be a whole number"),
    ('{"tokens": 8, "cu_seqlens": [0, 4, 9]}', "cu_seqlens: documents of 9 tokens do not fit a row of 8"),
    ('{"tokens": 8, "cu_seqlens": [0, 5, 4]}', "cu_seqlens: must begin with 0 and never fall"),
    ('{"document_lengths": [[3, -1]], "tokens": 8}', "document_lengths: a document has a negative length"),
    ('{"documents": [[[1, 3]]], "tokens": 8}', "documents: row 0 has 3 tokens, not 8"),
    ('{"documents": [[[1, 3, 4]]], "tokens": 8}', "documents: documents[0][0] must be a pair of whole numbers"),
    ('{"document_ids": [[1, "a"]]}', "document_ids: document_ids[0][1] must be a whole number, got 'a'"),
    ('{"document_ids": [[1, 1], [1]]}', "document_ids: row 1 has 1 tokens, not 2"),
    ('{"document_ids": [[1, 1]], "batch": 2}', "document_ids: describes 1 rows, the batch has 2"),
    ('{"position_ids": [[0, 1]], "cu_seqlens": [0, 2]}', "position_ids: says the same as cu_seqlens"),
    ('{"attention_mask": [[1, 2]]}', "attention_mask: must hold 0, 1, got 2"),
    ('{"padding": [[[1, 9]]], "tokens": 8}', "padding: span 1..9 is outside 0..8"),
    ('{"token_type_ids": [[0, 3]]}', "token_type_ids: must hold 0, 1, 2, got 3"),
    ('{"tokens": 8, "heads": 6, "kv_heads": 4}', "kv_heads: 4 does not divide heads 6"),
    ('{"tokens": 8, "scale": NaN}', "scale: must be a finite number, got nan"),
    ('{"tokens": 8, "causal": 1}', "causal: must be true or false, got 1"),
    ('{"tokens": 8, "variants": ["window.wide"]}', "variants: 'window.wide' is no variant of this batch's rules,"),
    ('{"tokens": 8, "name": "a/b"}', "name: must be a word"),
    ('{"tokens": 8, "name": "a"}\n{"tokens": 8, "name": "a"}', "run.jsonl:2: name: 'a' stands on an earlier line too"),
    ("\n", "run.jsonl: no captured batch in it"),
    ('{"document_ids": [[1, 9223372036854775808]]}', "document_ids: document_ids[0][1] must be a whole number of 64"),
    ('{"documents": [[[-9223372036854775809, 4]]]}', "documents: documents[0][0][0] must be a whole number of 64 bits"),
    ('{"position_ids": [[0, 1, 2, 1' + "0" * 30 + ']]}', "position_ids: position_ids[0][3] must be a whole"),
    ('{"tokens": 1' + "0" * 5000 + '}', "run.jsonl:1: not JSON that can be read: "),
    ('{"tokens": 1' + "0" * 30 + '}', "tokens: must be at most 2147483647, got 10000"),
    ('{"tokens": 8, "heads": 2147483648}', "heads: must be at most 2147483647"),
    ('{"cu_seqlens": [0, 4000000000]}', "cu_seqlens: shows 4000000000 tokens a row, at most 2147483647 are possible"),
    ('{"documents": [[[1, 3000000000]]]}', "documents: shows 3000000000 tokens a row"),
    ('{"tokens": 8, "scale": 1' + "0" * 400 + '}', "scale: must be a finite number, got 10000"),
    ('{"tokens": 8, "scale": 1e999}', "scale: must be a finite number, got inf"),
    ('{"documents": ' + "[" * 100000 + "]" * 100000 + "}", "run.jsonl:1: not JSON that can be read: it is nested"),
    ('{"documents": ' + "[" * 500 + "]" * 500 + "}", "run.jsonl:1: documents: documents[0][0] must be a pair of whole"),
    ('{"documents": [' + "[" * 500 + "]" * 500 + ",[]]}", "run.jsonl:1: documents: documents[0][0] must be a pair of"),
    ('{"tokens": 8, "window": 3, "window": 4}', "run.jsonl:1: window: stands twice in this line"),
    ('{"tokens": 8, "note": {"a": 1, "a": 2}}', "run.jsonl:1: a: stands twice in this line"),
    ('{"tokens": 8, "note": "two\\nlines"}', "note: must be a sentence on one line, got 'two\\nlines'"),
    ('{"tokens": 8, "note": 3}', "note: must be a sentence on one line, got 3"),
    ('{"tokens": 8, "name": "a\\nb"}', "name: must be a word"),
    ('{"tokens": 8, "name": "a\u2028b"}', "name: must be a word"),
    ('{"tokens": 8, "name": "' + "a" * 101 + '"}', "name: must be a word of at most 100 letters"),
    ('{"tokens": 8, "two\\nlines": 3}', "run.jsonl:1: 'two\\nlines': no such field"),
    ('{"tokens": 8, "two\u2028lines": 3}', "run.jsonl:1: 'two\\u2028lines': no such field"),
    ('{"tokens": 8, "window": 4, "variants": ["window.inclusive", "window.compacted"]}',
     "variants: window.inclusive and window.compacted are two readings of one rule"),
    ('{"tokens": 8, "documents": {}}', "documents: must be a list, got dict"),
    ('{"document_lengths": [[4, 4], 3]}', "document_lengths: document_lengths[1] must be a list of whole numbers"),
])
def test_a_bad_line_is_named(tmp_path, text, message):
    (tmp_path / "run.jsonl").write_text(text)
    with pytest.raises(ValueError, match="^[^\n]*$") as raised:
        captured.read(tmp_path / "run.jsonl")
    assert message in str(raised.value)


def test_bytes_that_are_no_text_name_their_line(tmp_path):
    (tmp_path / "run.jsonl").write_bytes(b'{"tokens": 8}\n{"name": "\xff"}\n')
    with pytest.raises(ValueError, match="run.jsonl:2: not UTF-8 at byte 11"):
        captured.read(tmp_path / "run.jsonl")


@pytest.mark.parametrize(("text", "message"), [
    ('{"tokens": 2147483647}', "1: batch 1 x tokens 2147483647 is more than 67108864 tokens at once"),
])
def test_what_no_machine_holds_is_refused(tmp_path, text, message):
    (tmp_path / "run.jsonl").write_text(text)
    with pytest.raises(ValueError, match=message):
        captured.read(tmp_path / "run.jsonl")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match="none.jsonl: cannot be read"):
        captured.read(tmp_path / "none.jsonl")


def test_recorded_tensors_are_read_back(tmp_path):
    path = tmp_path / "run.jsonl"
    ids = torch.tensor([[1, 1, 2, 2, 2, 0], [5, 5, 5, 5, 5, 5]])
    types = torch.tensor([[0, 1, 1, 0, 0, 0]] * 2)
    live = torch.tensor([[True] * 5 + [False], [True] * 6])
    assert captured.record(path, document_ids=ids, token_type_ids=types, attention_mask=live, window=3, heads=8,
                           kv_heads=2, head_dim=64, scale=None)
    assert captured.record(path, cu_seqlens=torch.tensor([0, 4, 9], dtype=torch.int32), name="second")
    first, second = (scenario.at(1, "zigzag", "fp32").rows() for scenario in captured.read(path))
    assert torch.equal(first.documents, ids) and torch.equal(first.token_types, types)
    assert torch.equal(first.padding, ~live)
    assert second.documents.tolist() == [[1] * 4 + [2] * 5]
    assert len(path.read_text().splitlines()[0]) < 300


def test_only_rank_zero_records(tmp_path):
    path = tmp_path / "run.jsonl"
    assert not captured.record(path, rank=1, tokens=8)
    assert not path.exists()
    assert captured.record(path, rank=0, tokens=8)
    assert len(captured.read(path)) == 1


def test_a_bad_batch_is_refused_before_it_is_written(tmp_path):
    path = tmp_path / "run.jsonl"
    with pytest.raises(ValueError, match="cu_seqlens: documents of 9 tokens do not fit a row of 8"):
        captured.record(path, tokens=8, cu_seqlens=[0, 9])
    with pytest.raises(ValueError, match="windows: no such field"):
        captured.record(path, tokens=8, windows=9)
    assert not path.exists()


def test_a_file_is_a_pattern_and_a_slice_says_so(tmp_path):
    path = tmp_path / "run.jsonl"
    captured.record(path, tokens=90, document_lengths=[[50, 40]], name="step", heads=4, kv_heads=2)
    cases = catalogue.select(str(path), worlds=(2,), tokens=64)
    assert {case.name for case in cases} == {"captured/step"} and cases[0].shape.tokens == 64
    assert cases[0].note == "captured batch; leading 64 of 90 tokens"


def test_a_slice_longer_than_a_row_leaves_the_row_as_it_is(tmp_path):
    path = tmp_path / "run.jsonl"
    captured.record(path, tokens=90, document_lengths=[[50, 40]], name="short")
    captured.record(path, tokens=300, document_lengths=[[100, 200]], name="long")
    short, long = catalogue.select(str(path), worlds=(2,), layouts=("zigzag",), dtypes=("fp64",), tokens=200)
    assert short.rows().documents.tolist() == [[1] * 50 + [2] * 40]
    assert short.note == "captured batch; all of its 90 tokens, 200 were asked for"
    assert long.rows().documents.tolist() == [[1] * 100 + [2] * 100]
    assert long.note == "captured batch; leading 200 of 300 tokens"


def test_separators_of_unicode_end_no_line(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text('\ufeff{"tokens": 8, "note": "one\u00a0line"}\r\n\u2028\n{"tokens": 9}\n', encoding="utf-8")
    assert [one.name for one in captured.read(path)] == ["captured/run-1", "captured/run-3"]
    path.write_text('{"tokens": 8}\n{"tokens": 8, "note": "a\u2028b"}\n', encoding="utf-8")
    with pytest.raises(ValueError, match="run.jsonl:2: note: must be a sentence on one line"):
        captured.read(path)


def test_a_file_of_any_name_names_its_batches(tmp_path):
    path = tmp_path / "my run, 'two'.jsonl"
    path.write_text('{"tokens": 8}\n')
    assert [one.name for one in captured.read(path)] == ["captured/my-run---two--1"]


def test_a_name_with_the_right_form_is_kept_per_file(tmp_path):
    path = tmp_path / "run.jsonl"
    for _ in range(2):
        captured.record(path, tokens=8)
    assert [scenario.name for scenario in captured.read(path)] == ["captured/run-1", "captured/run-2"]


def test_a_name_is_recorded_once(tmp_path):
    path = tmp_path / "run.jsonl"
    assert captured.record(path, tokens=8, name="step-1")
    assert captured.record(path, tokens=8)
    before = path.read_text()
    for name in ("step-1", "run-2"):
        with pytest.raises(ValueError, match=f"^name: '{name}' stands in .*run.jsonl already$"):
            captured.record(path, tokens=8, name=name)
    captured.record(path, tokens=8, name="run-4")
    captured.record(tmp_path / "other.jsonl", tokens=8, name="größe")
    with pytest.raises(ValueError, match="^name: 'größe' stands in"):
        captured.record(tmp_path / "other.jsonl", tokens=8, name="größe")
    with pytest.raises(ValueError, match="^name: 'run-4' stands in"):
        captured.record(path, tokens=9)
    assert path.read_text() == before + '{"tokens":8,"name":"run-4"}\n'
    assert len(captured.read(path)) == 3


def test_a_cut_line_does_not_take_the_next_one_with_it(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text('{"tokens": 8}\n{"tok')
    captured.record(path, tokens=9)
    assert path.read_text().splitlines()[2] == '{"tokens":9}'
    with pytest.raises(ValueError, match="run.jsonl:2: not JSON"):
        captured.read(path)


@pytest.mark.parametrize(("batch", "message"), [
    ({"attention_mask": [[1, 0.5]]}, "attention_mask: must hold 0, 1, got 0.5"),
    ({"attention_mask": [[0.0, float("-inf")]]}, "attention_mask: must hold 0, 1, got -inf"),
    ({"attention_mask": []}, "attention_mask: is empty"),
    ({"attention_mask": 1}, "attention_mask: must be a list, got int"),
    ({"attention_mask": torch.ones(1, 1, 4, 4)}, r"attention_mask: must hold 0, 1, got \[\["),
    ({"attention_mask": [[1, 1], [1]]}, "attention_mask: row 1 has 1 tokens, not 2"),
    ({"tokens": 8, "note": object()}, "note: must be a sentence on one line"),
    ({"document_ids": [[1, 1 << 63]]}, "document_ids: .* must be a whole number of 64 bits"),
    ({"document_ids": [torch.tensor([1, 1])]}, "document_ids: "),
    ({"tokens": 8, "scale": 10**5000}, "scale: must be a finite number, got int of very many digits"),
    ({"documents": [torch.ones(90, 90)]}, "documents: "),
    ({"tokens": 8, "scale": 10**400}, "scale: must be a finite number"),
])
def test_what_cannot_be_recorded_is_named(tmp_path, batch, message):
    path = tmp_path / "run.jsonl"
    with pytest.raises(ValueError, match=f"^{message}[^\n]*$"):
        captured.record(path, **batch)
    assert not path.exists()


def test_masks_of_truths_and_floats_are_recorded(tmp_path):
    path = tmp_path / "run.jsonl"
    captured.record(path, attention_mask=[True, True, False])
    captured.record(path, attention_mask=torch.tensor([[1.0, 0.0]]))
    one, other = (scenario.at(1, "zigzag", "fp64").rows().padding.tolist() for scenario in captured.read(path))
    assert one == [[False, False, True]] and other == [[False, True]]
