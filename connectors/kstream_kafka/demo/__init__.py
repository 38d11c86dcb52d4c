"""The demonstration: an embedded broker, a feed of orders, and the job that totals them."""
