"""What may be published of a run: averages of messages (readouts.py), and the model with its
certificate that one of them becomes (model.py; predicting.py: how it is used; folder.py: its files;
of_run.py: that of a simulation). tensors.py: arrays as bytes, in the safetensors format.
"""
