"""What methods are made of: the base class, cells, the problem, pieces that several methods use."""
