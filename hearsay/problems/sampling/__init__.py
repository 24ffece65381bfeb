"""Which records a step uses: samplers, each with its participation pattern,
and the batches they form.
"""
