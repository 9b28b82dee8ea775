int not_a_module = 1;
