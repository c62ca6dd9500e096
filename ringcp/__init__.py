"""Ring context-parallel attention: `ring_attention` over sharded sequences, for any mask made of key intervals."""

from ringcp.attention import ring_attention
from ringcp.balance import balanced_layout
from ringcp.exchange import Mailbox, exchange_for
from ringcp.gather import gather_mask
from ringcp.layout import Layout, make_layout
from ringcp.mask import Mask

__all__ = ["Layout", "Mailbox", "Mask", "balanced_layout", "exchange_for", "gather_mask", "make_layout",
           "ring_attention"]
