"""AgentCompile's Python side: it captures a PyTorch decoder for the compiler to read."""
