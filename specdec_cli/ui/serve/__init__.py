"""How a server looks to its operator."""
