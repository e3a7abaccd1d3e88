"""Training of the demo models: ``cd scripts && python -m train_demos all``."""
