"""What a view is exported as: one offline HTML file, an SVG, a PNG."""
