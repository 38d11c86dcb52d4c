"""Planning without I/O: positions, offsets and limits in; offset ranges, plans and tasks out."""
