"""The agent: holds spoken conversations. Pipecat carries them; the engines are those of the same deployment."""
