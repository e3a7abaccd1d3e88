"""Sentences and pictures for the demo models, all made here by rule."""
