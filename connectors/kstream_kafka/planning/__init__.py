"""Planning without I/O: from positions, offsets and limits to offset ranges, plans and tasks."""
