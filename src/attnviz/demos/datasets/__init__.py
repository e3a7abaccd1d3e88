"""What the demo models are trained on: sentences, dates and pictures, all made here by rule."""
