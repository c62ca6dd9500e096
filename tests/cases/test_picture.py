"""Owners of a picture's rows."""

import torch

from cases import picture
from cases.rows import Rows


def test_striped_rows_keep_all_their_ranks_when_the_picture_is_coarser_than_the_stripes():
    layout = [torch.arange(rank, 193, 4) for rank in range(4)]
    owner = picture.owner(layout, Rows(1, 193, 1)).tolist()
    assert owner[:8] == [0, 1, 2, 3, 0, 1, 2, 3]


def test_contiguous_rows_keep_their_rank():
    owner = picture.owner(list(torch.arange(100).tensor_split(2)), Rows(1, 100, 1), cells=10).tolist()
    assert owner == [0] * 5 + [1] * 5
