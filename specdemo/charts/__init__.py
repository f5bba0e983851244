"""Every Plotly chart, and every colour."""
