"""What the formats of the chat-completions shape share: `openai_chat` and `openrouter` are dialects of it."""
