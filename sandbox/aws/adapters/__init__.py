"""How each CloudFormation resource type is created, changed and deleted through its service's API.

`table` has a row for each type: a new type is a new row. `adapter` carries a row out; a type whose calls no row can
describe has a class of its own, in the module of its service.
"""
