"""Creation, change and deletion of each CloudFormation resource type through its service's API.

`table` has a row for each type, so a new type is a new row. `adapter` executes a row; a type whose calls a row cannot
describe has a class of its own, in the module of its service.
"""
