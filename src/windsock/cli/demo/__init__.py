"""The demo: a real Airflow with Windsock, events through two doors, and what became of each of them."""
