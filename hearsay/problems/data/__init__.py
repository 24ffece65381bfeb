"""Where records come from: files, named data sets, images, their division among agents,
endless streams.
"""
