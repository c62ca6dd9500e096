"""Ring context-parallel attention: `ring_attention` over sharded sequences, for any mask made of key intervals."""

from ringcp.attention import ring_attention
from ringcp.exchange import Mailbox, exchange_for
from ringcp.gather import gather_mask
from ringcp.layout import Layout, make_layout
from ringcp.mask import Mask

__all__ = ["Layout", "Mailbox", "Mask", "exchange_for", "gather_mask", "make_layout", "ring_attention"]
