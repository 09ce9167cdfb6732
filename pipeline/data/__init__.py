"""Pictures and lists on disk: decoding, packing, rows, published counts; imports core and labels."""
