"""What is learned: losses with the bounds that a certificate needs,
and the domains of their models.
"""
