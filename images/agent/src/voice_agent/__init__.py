"""The agent, which runs spoken conversations with Pipecat and the engines of the same deployment."""
