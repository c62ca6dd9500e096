"""Real documents packed into rows."""

import json

import pytest

from cases import catalogue, real


@pytest.mark.parametrize("kind", real.KINDS)
@pytest.mark.parametrize(("tokens", "batch"), [(4096, 2), (8192, 1), (1000, 3)])
def test_packing_keeps_every_token_in_order(kind, tokens, batch):
    lengths, types = real.pack(kind, tokens, batch)
    assert len(lengths) == len(types) == batch
    assert {sum(row) for row in lengths} == {tokens} == {sum(length for _, length in row) for row in types}
    pieces = iter([length for row in lengths for length in row])
    for document in real.documents(kind):
        whole, got = sum(length for _, length in document), 0
        while got < whole and (piece := next(pieces, None)) is not None:
            got += piece
        if got < whole:
            break
        assert got == whole
    assert next(pieces, None) is None


def test_a_document_is_split_at_the_end_of_a_row():
    first, second = real.documents("code")[0][0][1], real.documents("code")[1][0][1]
    lengths, _ = real.pack("code", first + 100, 2)
    assert lengths[0] == [first, 100] and lengths[1][0] == min(second - 100, first + 100)


def test_images_are_vision_tokens():
    document = json.loads(real.DATA.read_text())["image_text"][0]
    _, types = real.pack("image_text", 4096)
    assert types[0][:3] == tuple((int(kind == "image"), length) for kind, length in document[:3])
    case = catalogue.select("real/images-4k", worlds=(1,))[0]
    assert {rule.name for rule in case.mask.rules} == {"causal", "documents", "vision", "window"}
    assert int((case.rows().token_types == 1).sum()) == sum(n for kind, n in types[0] if kind == 1) > 500


def test_the_default_catalogue_holds_leading_slices_that_say_so():
    slices = [one for one in real.CASES if one.tier == "default"]
    assert {one.shape.tokens for one in slices} == {512, 768}
    assert all("leading" in one.note and "of 8192 tokens" in one.note for one in slices)
    whole = next(one for one in real.CASES if one.name == "real/code-8k")
    assert whole.resized(512).mask == next(one for one in slices if one.name == "real/code").mask


def test_too_many_tokens_are_refused():
    with pytest.raises(ValueError, match="image_text documents do not fill 9000 rows of 32768 tokens"):
        real.pack("image_text", 32768, 9000)
