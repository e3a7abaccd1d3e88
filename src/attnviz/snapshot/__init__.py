"""What a view can be taken along as: one offline page, an SVG, a PNG."""
