"""The agent, which runs spoken conversations with Pipecat and the engines in the same deployment."""
