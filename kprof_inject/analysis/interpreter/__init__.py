"""Operations that the CTAs of a launch executed: the kernel is evaluated with the launch's integers."""
