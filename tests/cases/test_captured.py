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
    ('{"tokens": 8, "variants": ["window.wide"]}', "variants: 'window.wide' is no variant of this batch's rules: none"),
    ('{"tokens": 8, "name": "a/b"}', "name: must be a word"),
    ('{"tokens": 8, "name": "a"}\n{"tokens": 8, "name": "a"}', "run.jsonl:2: name: 'a' stands on an earlier line too"),
    ("\n", "run.jsonl: no captured batch in it"),
])
def test_a_bad_line_is_named(tmp_path, text, message):
    (tmp_path / "run.jsonl").write_text(text)
    with pytest.raises(ValueError, match="^[^\n]*$") as raised:
        captured.read(tmp_path / "run.jsonl")
    assert message in str(raised.value)


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
    whole = captured.sliced(captured.read(path)[0], 1000)
    assert whole.shape.tokens == 90 and whole.note == "captured batch"


def test_a_name_with_the_right_form_is_kept_per_file(tmp_path):
    path = tmp_path / "run.jsonl"
    for _ in range(2):
        captured.record(path, tokens=8)
    assert [scenario.name for scenario in captured.read(path)] == ["captured/run-1", "captured/run-2"]
