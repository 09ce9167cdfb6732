"""Tables of labels and how labels are hidden: the published recipe, draws, biases, splits; imports core."""
