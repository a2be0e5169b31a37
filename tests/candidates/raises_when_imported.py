# expect: DOES NOT BUILD import_failed: raises while it is imported
raise RuntimeError("this kernel needs an architecture that is not there")
