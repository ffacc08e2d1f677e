"""How a chat looks."""
