"""The skeletons that `herd plugin new` writes: one template for each file, beside this one."""
