import itertools

import torch

from losscli.truth.blocks import blocks, part
from tests.parameters import naming


def test_blocks_cover_every_element_once_in_order_and_stay_within_the_limit():
    for limit, shape in itertools.product(
        [1, 3, 7, 12, 1000], [(), (1,), (11,), (0,), (0, 4), (5, 4), (2, 3, 5)]
    ):
        with naming(limit, shape):
            count = torch.Size(shape).numel()
            tensor = torch.arange(count).view(shape)

            parts = [tensor[block] for block in blocks(shape, limit)]

            assert torch.cat([p.flatten() for p in parts]).tolist() == list(range(count))
            assert all(p.numel() <= limit for p in parts)


def test_a_part_broadcasts_to_its_block():
    for operand_shape in [(), (1,), (5,), (4, 1), (1, 5), (4, 5), (3, 1, 5)]:
        with naming(operand_shape):
            shape = torch.broadcast_shapes(operand_shape, (3, 4, 5))
            operand = torch.randn(operand_shape, generator=torch.Generator().manual_seed(0))

            for block in blocks(shape, 6):
                expected = operand.expand(shape)[block]
                assert torch.equal(part(operand, block).expand(expected.shape), expected)
