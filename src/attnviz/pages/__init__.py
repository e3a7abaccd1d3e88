"""Exports of views: offline HTML files, SVG, PNG and PDF."""
