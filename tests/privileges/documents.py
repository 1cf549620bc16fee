def cases(suite): pass
