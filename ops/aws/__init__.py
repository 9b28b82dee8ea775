"""What the commands that ask an AWS account share: the account, and what its refusals mean."""
